"""Stands in for setuptools while pip downloads a source distribution that nobody wants to build."""
