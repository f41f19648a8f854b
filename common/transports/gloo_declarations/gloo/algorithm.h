#pragma once

// LibTorch's wheel has gloo's code but not its headers. This folder declares what the header of
// c10d::ProcessGroupGloo names. Nothing declared here is defined or called by this repository.
namespace gloo {
class Algorithm;
}
