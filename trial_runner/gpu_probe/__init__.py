"""The GPUs of a machine and the processes on them, read by a process of its own, since drivers may hang for ever.

The keeper starts it (see `keeper.gpus`) and writes a line for every reading that it wants; the answer is a line of
JSON, the *reading* of the wire contract. It ends when its input does. `nvml` asks the driver's library, `nvidia_smi`
the driver's program where that fails. Standard library only, Python 3.7 syntax.
"""
