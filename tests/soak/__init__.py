"""A million decisions in minutes: the whole service in one process, in virtual time and without HTTP, judged by brute force."""
