"""The offline harness: recorded answers of models put through the chat serving code of the engine that is installed."""
