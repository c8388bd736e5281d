"""The page at `/ui/`: the handler of its files, and the files. They need no build step, and load nothing from elsewhere.

The page reads the same API as every other client; nothing in this package knows what the API answers.
"""
