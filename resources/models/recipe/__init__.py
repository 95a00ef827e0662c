"""The recipe of the built-in model: teacher text, student training, FP8 export, evaluation.

It is no part of the program: nothing in `app`, `engine` or `kernels` imports it, and it imports
nothing of them. Run `python -m recipe <stage>` in `resources/models`; README.md tells the order.
"""
