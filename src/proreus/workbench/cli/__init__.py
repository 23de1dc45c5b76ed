"""The subcommands of the workbench."""
