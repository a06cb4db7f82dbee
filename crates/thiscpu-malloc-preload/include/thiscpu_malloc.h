/* Functions of libthiscpu_malloc.so that no other allocator has.
 *
 * A program that may also run without the library finds them by dlsym(RTLD_DEFAULT, NAME). Others
 * link with -lthiscpu_malloc. */
#ifndef THISCPU_MALLOC_H
#define THISCPU_MALLOC_H

#ifdef __cplusplus
extern "C" {
#endif

/* Changes a setting of the allocator from now on. docs/malloc.md lists names and values. A value
 * that is NULL stands for the first of the setting's values, as a name without a value does in
 * THISCPU_MALLOC.
 *
 * Returns 0, or an error number, and then nothing has changed: ENOENT if no setting has the name,
 * EINVAL if the setting does not have the value, or ENOMEM if memory for it is exhausted. Keeps
 * errno. Takes a lock and system calls, so signal handlers must not call it. */
int thiscpu_malloc_set(const char *name, const char *value);

#ifdef __cplusplus
}
#endif
#endif
