"""`modegraph serve check`: does a server reproduce what the run was trained to say?"""
