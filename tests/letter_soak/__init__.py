"""Dead letters under fire: workers and the process that sends letters back are killed, and connections are cut."""
