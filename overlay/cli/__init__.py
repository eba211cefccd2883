"""The command ``engine-overlay``: one module per subcommand."""
