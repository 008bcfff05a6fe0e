"""The audit: does the gate that a patch opens lead to code that exists on the target?"""
