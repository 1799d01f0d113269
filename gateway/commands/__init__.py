"""The commands of `jitney`, a file for each group; what is heavy is imported when a command runs."""
