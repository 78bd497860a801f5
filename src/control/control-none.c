typedef int kji_empty;
