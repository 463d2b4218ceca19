def studio_page(): return "<h1>studio</h1>"
