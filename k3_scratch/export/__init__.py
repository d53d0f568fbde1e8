"""The model for other programs: Hugging Face directories, GGUF files, four-bit experts."""
