"""What differs between the problems the solver serves. Problems never loop."""
