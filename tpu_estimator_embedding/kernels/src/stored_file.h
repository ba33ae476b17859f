// SPDX-License-Identifier: Apache-2.0
// A data file of a checkpoint, from which rows are read while it may be deleted or replaced.
//
// The open file keeps the content of one that is deleted or replaced by another. Rows are copied by
// pread: unlike a mapping of a file that is truncated, it returns an error and raises no signal.
#ifndef TPU_ESTIMATOR_EMBEDDING_STORED_FILE_H_
#define TPU_ESTIMATOR_EMBEDDING_STORED_FILE_H_

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/syscall.h>
#endif

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

namespace tpu_estimator_embedding {

class StoredFile {
 public:
  // Opens a file, once for all tables that it holds. If it cannot be opened, returns null and sets
  // `problem`.
  static std::shared_ptr<StoredFile> Open(const std::string& path, std::string* problem) {
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
      *problem = path + ": " + std::strerror(errno);
      return nullptr;
    }
    std::shared_ptr<StoredFile> file(new StoredFile(path, descriptor));
    if (!Identify(descriptor, &file->identity_)) {
      *problem = path + ": " + std::strerror(errno);
      return nullptr;
    }
    static std::mutex mutex;
    static auto* const opened = new std::map<Identity, std::weak_ptr<StoredFile>>;
    std::lock_guard<std::mutex> lock(mutex);
    for (auto each = opened->begin(); each != opened->end();) {
      each = each->second.expired() ? opened->erase(each) : std::next(each);
    }
    std::weak_ptr<StoredFile>& known = (*opened)[file->identity_];
    if (const std::shared_ptr<StoredFile> other = known.lock()) return other;
    known = file;
    return file;
  }

  StoredFile(const StoredFile&) = delete;
  StoredFile& operator=(const StoredFile&) = delete;
  ~StoredFile() { close(descriptor_); }

  // Copies bytes of the file; returns what is wrong, empty if nothing is.
  std::string Read(int64_t offset, int64_t size, char* to) const {
    while (size > 0) {
      const ssize_t count = pread(descriptor_, to, size, offset);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return path_ + " unreadable (" + std::strerror(errno) + ")";
      if (count == 0) return path_ + " truncated meanwhile";
      offset += count;
      size -= count;
      to += count;
    }
    return "";
  }

  // Returns the error of a file that was written to since it was opened, else an empty text.
  std::string Check() const {
    Identity now;
    if (!Identify(descriptor_, &now)) return path_ + " unreadable (" + std::strerror(errno) + ")";
    return now == identity_ ? "" : path_ + " changed meanwhile";
  }

 private:
  // Device, inode, size, and seconds and nanoseconds of the last change of its content.
  using Identity = std::tuple<uint64_t, uint64_t, int64_t, int64_t, int64_t>;

  StoredFile(const std::string& path, int descriptor) : path_(path), descriptor_(descriptor) {}

  static bool Identify(int descriptor, Identity* identity) {
    struct stat found;
#ifdef __linux__
    // The C library's fstat is a symbol that older systems lack.
    if (syscall(SYS_fstat, descriptor, &found) != 0) return false;
#else
    if (fstat(descriptor, &found) != 0) return false;
#endif
#ifdef __APPLE__
    const struct timespec& changed = found.st_mtimespec;
#else
    const struct timespec& changed = found.st_mtim;
#endif
    *identity = Identity(found.st_dev, found.st_ino, found.st_size, changed.tv_sec,
                         changed.tv_nsec);
    return true;
  }

  const std::string path_;
  const int descriptor_;
  Identity identity_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_STORED_FILE_H_
