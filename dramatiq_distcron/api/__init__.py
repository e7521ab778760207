"""What users, the command line and other faces call. Each of them decides nothing of its own."""
