"""Plays every scenario of config/, and checks what each promises."""
