"""What all other subpackages use: arrays, checks of parameters, files, compiling, threads."""
