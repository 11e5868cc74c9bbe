// What times depend on besides the code: the machine, in one line that stays the same as long as it does.
#ifndef INLAY_SERVER_MEASURING_DEVICE_H_
#define INLAY_SERVER_MEASURING_DEVICE_H_

#include <string>

namespace inlay::server {

// "AMD EPYC 9B14 family 25 model 17 stepping 1; 8 CPUs; L1d 32K, L1i 32K, L2 1024K, L3 32768K; 3700000 kHz, governor
// performance". What /proc and /sys below `root` do not say is left out.
std::string DescribeDevice(const std::string& root = "/");

}  // namespace inlay::server

#endif  // INLAY_SERVER_MEASURING_DEVICE_H_
