"""What ``engine-overlay doctor`` looks at; each check is a module that gives findings, and none imports an engine.

What only the engine can answer is asked in processes of their own: :mod:`engine_overlay.doctor.child` starts them,
:mod:`engine_overlay.doctor.inside` is what runs there.
"""
