"""Engine-neutral parsing of what a model wrote: knows no engine and no overlay."""
