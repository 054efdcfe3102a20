"""What every room uses and none of them owns: arrays, checks of parameters, files, compiling, threads."""
