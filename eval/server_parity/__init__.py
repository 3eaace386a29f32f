"""`modegraph serve check`: does a server reproduce the run?"""
