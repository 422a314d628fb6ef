/* EXPECT(what) ends the program with the line and the text of `what` unless `what` holds. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(what)                                                                      \
    do {                                                                                  \
        errno = 0;                                                                        \
        if (!(what)) {                                                                    \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, strerror(errno));      \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)
