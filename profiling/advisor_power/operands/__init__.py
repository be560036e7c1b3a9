"""The data of matrix products, written as text: values, their order and their bits."""
