"""The surroundings of the program: files, the machine, other processes; progress, tables and plots for people."""
