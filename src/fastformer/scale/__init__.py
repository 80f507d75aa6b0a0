"""Many files with one command: shards, their manifest, and the engines that share them out.

`shards.py` finds the files, `manifest.py` knows which of them are done, `work.py` answers one file, and an engine calls
it for all: `processes.py` on the cores of this machine, `on_ray.py` on a cluster. `scoring.py` puts them together.
"""
