"""The real engine on this CPU: environment, tiny model, scripted answers, server, and what they prove."""
