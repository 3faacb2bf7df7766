package settings

// Bytes is a size in bytes. It is written with a binary unit (64MiB, also 64MB and 64m) and prints in the largest one that divides it.
type Bytes int64
