"""`modegraph serve check`: does a server say what the run was trained to say?"""
