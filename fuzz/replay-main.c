/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over files, and the files of folders, given as arguments: the corpus as an
 * ordinary test, without a fuzzer. Prints how many. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat st;
    if (!file || fstat(fileno(file), &st) < 0) {
        perror(path);
        exit(1);
    }
    /* Exactly as many bytes as there are, so that a sanitizer sees each one too many. */
    size_t size = (size_t)st.st_size;
    uint8_t *data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, file) != size) {
        perror(path);
        exit(1);
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 1;
}

static int replay(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir)
        return replay_file(path);
    int n = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        char name[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        n += replay(name);
    }
    closedir(dir);
    return n;
}

int main(int argc, char **argv)
{
    int n = 0;
    for (int k = 1; k < argc; k++)
        n += replay(argv[k]);
    printf("%d inputs\n", n);
    return n ? 0 : 1;
}
