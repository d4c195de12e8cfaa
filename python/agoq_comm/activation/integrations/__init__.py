"""Activations in few bits within other people's training loops.

Each module here needs the package that it is named after; `import agoq_comm` needs none of them.
"""
