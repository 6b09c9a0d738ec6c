"""What advisors import: `msg_dispatcher_base`, `tuner_command_channel`, NNI 2's `protocol`, and `common`."""
