WHO = "beside"
