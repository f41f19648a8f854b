#include <base/whole_file.h>
#include <base/write_all.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>

namespace fsdp {
namespace {

namespace fs = std::filesystem;

// Describes what a path names after its symbolic links are followed: a file, or a name that no file
// has yet.
struct Place {
  int error{};                      // errno if the path cannot be resolved, else 0
  std::optional<struct stat> file;  // status of the file; no value: no file has this name yet
  fs::path path;                    // path of the file, after all symbolic links were followed
  bool is_open{};  // whether the path names an open file of a process, as /dev/stdout does

  bool plain() const { return !is_open && (!file || S_ISREG(file->st_mode)); }
};

bool lies_in_proc(const fs::path& path) {
  std::error_code none;
  const fs::path folder = fs::canonical(fs::absolute(path, none).parent_path(), none);
  return folder.string().starts_with("/proc/");
}

Place place_of(const std::string& path) {
  constexpr int kMostLinks = 40;
  Place place;
  struct stat status {};
  place.path = path;
  if (stat(path.c_str(), &status) == 0) {
    place.file = status;
  } else if (errno != ENOENT) {
    place.error = errno;
    return place;
  }
  std::error_code none;
  for (int i = 0; i < kMostLinks && fs::is_symlink(place.path, none); ++i) {
    place.is_open = place.is_open || lies_in_proc(place.path);
    place.path = place.path.parent_path() / fs::read_symlink(place.path, none);
  }
  return place;
}

// Returns the absolute path of the file, without symbolic links and dots.
fs::path whole_path(const Place& place) {
  std::error_code none;
  return fs::weakly_canonical(fs::absolute(place.path, none), none);
}

using Content = std::function<void(const WritePiece&)>;

// Calls `content`, and writes to `file` each piece that `content` passes on. Returns 0, or errno of
// the first write that failed.
int write_pieces(int file, const Content& content) {
  int error = 0;
  content([&](const std::string& piece) {
    if (error == 0) error = write_all(file, piece);
  });
  return error;
}

// A new file under a temporary name, in the folder of `place`. become() renames it to the path of
// `place`; if become() is not called or fails, the destructor deletes it.
class NewFile {
 public:
  explicit NewFile(const Place& place) : place_(place) {
    static int count = 0;
    const auto folder = place.path.parent_path();
    do {
      path_ = folder / (".fsdp-" + std::to_string(getpid()) + '-' + std::to_string(count++));
      file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (file_ < 0 && errno == EEXIST);
    error_ = file_ < 0 ? errno : 0;
  }
  ~NewFile() {
    if (file_ < 0) return;
    close(file_);
    if (!path_.empty()) unlink(path_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  int error() const { return error_; }  // errno if the file could not be made, else 0

  // Writes 4096 zero bytes to the new file, because a file can be made even on a full disk, but not
  // written. Returns 0 or errno.
  int try_to_write() {
    const std::string block(4096, '\0');
    return error_ != 0 ? error_ : write_all(file_, block);
  }

  // Writes the content, then renames this new file to the path of `place`. If it replaces a file
  // there, the new file gets the mode and, if the system permits it, the owner of the replaced
  // file. Returns 0 or errno.
  int become(const Content& content) {
    if (place_.file) {
      // Only the superuser may give a file another owner, so a failure of fchown() is ignored.
      if (fchown(file_, place_.file->st_uid, place_.file->st_gid) != 0) errno = 0;
      fchmod(file_, place_.file->st_mode & 07777);
    }
    if (const int error = write_pieces(file_, content)) return error;
    // Without fsync() before rename(), a power failure could leave an empty file in place of the
    // former one.
    if (fsync(file_) != 0) return errno;
    if (rename(path_.c_str(), place_.path.c_str()) != 0) return errno;
    path_.clear();
    return 0;
  }

 private:
  const Place& place_;
  fs::path path_;  // temporary path; empty after become() has renamed the file
  int file_;
  int error_;
};

int write_in_place(const std::string& path, const Content& content) {
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) return errno;
  const int error = write_pieces(file, content);
  close(file);
  return error;
}

int error_of_writing(const Place& place, const std::string& path, const Content& content) {
  if (place.error != 0) return place.error;
  if (!place.plain()) return write_in_place(path, content);
  NewFile file(place);
  return file.error() != 0 ? file.error() : file.become(content);
}

int error_before_writing(const Place& place, const std::string& path) {
  if (place.error != 0) return place.error;
  if (place.file && S_ISDIR(place.file->st_mode)) return EISDIR;
  if (place.file && access(path.c_str(), W_OK) != 0) return errno;
  return place.plain() ? NewFile(place).try_to_write() : 0;
}

}  // namespace

void write_whole_file(const std::string& path, const std::string& content) {
  write_whole_file(path, [&](const WritePiece& write) { write(content); });
}

void write_whole_file(const std::string& path, const Content& content) {
  const int error = error_of_writing(place_of(path), path, content);
  if (error != 0) throw std::runtime_error(path + ": can't be written: " + std::strerror(error));
}

std::string reason_not_to_write(const std::string& path) {
  const int error = error_before_writing(place_of(path), path);
  return error == 0 ? "" : std::strerror(error);
}

std::string reason_not_to_read(const std::string& path) {
  struct stat status {};
  int error = stat(path.c_str(), &status) == 0 ? 0 : errno;
  if (error == 0 && S_ISDIR(status.st_mode)) error = EISDIR;
  if (error == 0 && access(path.c_str(), R_OK) != 0) error = errno;
  return error == 0 ? "" : std::strerror(error);
}

std::string reason_not_to_fill(const std::string& folder) {
  struct stat status {};
  fs::path path = folder;
  if (!path.has_filename()) path = path.parent_path();  // removes the slash at the end of `folder`
  while (stat(path.c_str(), &status) != 0) {
    std::error_code none;
    if (errno != ENOENT) return std::strerror(errno);
    // A symbolic link without a target is refused, because no folder can be made at its path.
    if (fs::is_symlink(path, none)) return std::strerror(ENOENT);
    path = path.has_parent_path() ? path.parent_path() : ".";
  }
  if (!S_ISDIR(status.st_mode)) return std::strerror(ENOTDIR);
  Place place;
  place.path = path / "probe";
  const int error = NewFile(place).try_to_write();
  return error == 0 ? "" : std::strerror(error);
}

bool holds_something(const std::string& path) {
  const Place place = place_of(path);
  return place.plain() && place.file && place.file->st_size > 0;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool same_file(const std::string& one, const std::string& other) {
  const Place a = place_of(one), b = place_of(other);
  if (!a.plain() || !b.plain()) return false;
  if (a.file && b.file) return a.file->st_dev == b.file->st_dev && a.file->st_ino == b.file->st_ino;
  if (a.file || b.file) return false;
  return whole_path(a) == whole_path(b);
}

bool lies_below(const std::string& path, const std::string& folder) {
  const Place place = place_of(path);
  std::error_code unknown;
  const fs::path whole = fs::canonical(folder, unknown), file = whole_path(place);
  if (!place.plain() || unknown || !fs::is_directory(whole, unknown)) return false;
  if (std::mismatch(whole.begin(), whole.end(), file.begin(), file.end()).first == whole.end())
    return true;
  if (!place.file) return false;
  const fs::directory_iterator entries(whole, unknown);
  return std::any_of(begin(entries), end(entries),
                     [&](const auto& entry) { return same_file(entry.path(), path); });
}

}  // namespace fsdp
