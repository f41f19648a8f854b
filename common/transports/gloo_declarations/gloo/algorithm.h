#pragma once

// The wheel has gloo's code but not its headers. This folder declares what the header of
// c10d::ProcessGroupGloo names; nothing here is defined or called by us.
namespace gloo {
class Algorithm;
}
