"""What the program meets around it: files, the machine, and the person who watches: progress, tables, plots."""
