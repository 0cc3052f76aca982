"""The sub-commands of `manage.py history`: each has HELP, `add_arguments(parser)` and `run(options, out=, err=)`."""
