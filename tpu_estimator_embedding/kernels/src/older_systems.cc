// SPDX-License-Identifier: Apache-2.0
// Symbols of newer C and C++ libraries that the compiler's headers refer to. They are defined here,
// hidden, so that a library compiled on a newer system also loads on an older one.
#include <new>

// Newer glibc sets it while a process has one thread; false is always right.
extern "C" __attribute__((visibility("hidden"))) char __libc_single_threaded;
char __libc_single_threaded = 0;

namespace std {

[[noreturn]] __attribute__((visibility("hidden"))) void __throw_bad_array_new_length();
void __throw_bad_array_new_length() { throw bad_array_new_length(); }

}  // namespace std
