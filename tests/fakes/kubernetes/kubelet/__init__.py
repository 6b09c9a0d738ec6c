"""What runs pods: a node whose containers are processes of this machine."""
