# install(), find_package(tutti) and pkg-config files. Written by the packaging part.
