"""A fuzzer: what users give, damaged at random, to every verb of every task.

    make fuzz CASES=10000 SEED=1            # inputs, arguments, run folders, tools, and a table of what came out
    python -m tests.fuzz --seed 1 --only folders:17   # one case again, with all that it said

A case is a command line in a folder of its own; its kind, number and the seed say all of it. It runs in a fork of one
process that has imported everything, with a limit on time and memory, and ends in one of these ways:

    answer      exit code 0, and what was printed holds (`outcomes.py`)
    refusal     one line that says what is wrong, and a code for it
    traceback, hang, memory, crash, silent wrong: what must not be
"""
