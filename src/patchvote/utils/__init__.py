"""Tools that know nothing of images: files, checksums, schemas, memory, the terminal."""
