"""A real Slurm on this machine, of Debian's packages, as root: controller, two nodes, accounting."""
