#pragma once

// LibTorch's wheel has gloo's code but not its headers. The folder gloo_declarations/ declares the
// names of gloo that the header of c10d::ProcessGroupGloo uses. This repository neither defines nor
// calls them.
namespace gloo {
class Algorithm;
}
